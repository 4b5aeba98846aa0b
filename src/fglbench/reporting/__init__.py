"""Tables, figures, comparisons with papers and the report page, built from the collected records of a study."""
