"""Navigation: a small network chooses the next block of a loop from fields of the partial solution."""
