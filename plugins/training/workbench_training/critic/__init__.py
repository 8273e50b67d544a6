"""A critic: values of states, and the advantages that they give."""
