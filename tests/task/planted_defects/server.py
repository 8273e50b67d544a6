"""The server of the planted defects: it is never started."""
