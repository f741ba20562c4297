"""Files of text: lines, windows, encodings, outputs, locks and progress."""
