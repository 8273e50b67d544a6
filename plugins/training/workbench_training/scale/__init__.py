"""Several processes: the same steps on all of them, and weights sharded over them."""
