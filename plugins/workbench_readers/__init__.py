"""Dataset readers: jsonl, json, csv, tsv, parquet and Hugging Face datasets."""

from workbench import hookimpl


@hookimpl
def register_readers(register):
    register("jsonl", "workbench_readers.text_files:read_jsonl")
    register("json", "workbench_readers.text_files:read_json")
    register("csv", "workbench_readers.text_files:read_csv")
    register("tsv", "workbench_readers.text_files:read_tsv")
    register("parquet", "workbench_readers.parquet_and_hub:read_parquet")
    register("hf", "workbench_readers.parquet_and_hub:read_hf")
