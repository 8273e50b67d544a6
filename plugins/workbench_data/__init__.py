"""Dataset readers: jsonl, json, csv, tsv, parquet and Hugging Face datasets."""

from workbench import hookimpl


@hookimpl
def register_readers(register):
    register("jsonl", "workbench_data.text:read_jsonl")
    register("json", "workbench_data.text:read_json")
    register("csv", "workbench_data.text:read_csv")
    register("tsv", "workbench_data.text:read_tsv")
    register("parquet", "workbench_data.tables:read_parquet")
    register("hf", "workbench_data.tables:read_hf")
