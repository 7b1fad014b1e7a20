"""What a sweep is shown as: charts drawn by us, one page, a picture, tables for other programs."""
