"""Tables of the DCI-ES paper, one module each."""
