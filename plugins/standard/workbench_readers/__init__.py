"""Dataset readers: jsonl, json, csv, tsv, Excel, parquet, Hugging Face datasets, and files of AGENTIF and GTA."""

from workbench import hookimpl


@hookimpl
def register_readers(register):
    register("jsonl", "workbench_readers.json_files:read_jsonl")
    register("ndjson", "workbench_readers.json_files:read_jsonl")
    register("json", "workbench_readers.json_files:read_json")
    register("csv", "workbench_readers.tables:read_csv")
    register("tsv", "workbench_readers.tables:read_tsv")
    register("tab", "workbench_readers.tables:read_tsv")
    register("xlsx", "workbench_readers.spreadsheets:read_xlsx")
    register("parquet", "workbench_readers.parquet_and_hub:read_parquet")
    register("hf", "workbench_readers.parquet_and_hub:read_hf")
    register("agentif", "workbench_readers.agentif:read_agentif")
    register("gta", "workbench_readers.gta:read_gta")
