"""Small modules that know nothing of workbench. Take them by their file, as `workbench.base.text`."""
