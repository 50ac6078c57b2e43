"""Tables, charts and reports for the terminal."""
