"""Language models: what providers and models in this process share. Taken by file: some of them import torch."""
