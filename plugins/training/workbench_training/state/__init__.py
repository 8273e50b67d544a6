"""Files of a training: to resume from, and to clean up."""
