"""Small modules that do not depend on workbench. Import them by file, as in `workbench.base.text`."""
