"""Shared code of providers and of models in this process. Import by file: some of them import torch."""
