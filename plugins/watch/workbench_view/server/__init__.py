"""The pages of `workbench view`: one file for each kind of page, over the run database."""
