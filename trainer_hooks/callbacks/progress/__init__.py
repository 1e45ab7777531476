"""Progress bars, and callbacks that print metrics and progress."""
