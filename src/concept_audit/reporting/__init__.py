"""From rows to what people read: figures, tables, report. Computes nothing."""
