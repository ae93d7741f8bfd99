"""Networks: plain torch modules and frozen representations."""
