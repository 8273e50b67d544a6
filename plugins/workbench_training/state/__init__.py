"""What a training leaves on disk, to resume from and to clean up."""
