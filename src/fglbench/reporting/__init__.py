"""Tables, figures, comparison with papers and the report page, all made from a study's collected records."""
