"""hf:PATH-or-hub-id: a Hugging Face checkpoint, generated in batches in this process."""

import workbench


@workbench.hookimpl
def register_lms(register):
    register("hf", "workbench_hf.provider:hf")
