"""Reports: pure functions of records. A subject of several modules is a room; all stand on words, lines and the frame of pages."""
