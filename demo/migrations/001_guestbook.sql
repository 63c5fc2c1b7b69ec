-- What visitors wrote. The lengths are checked here as well as in the page: a page can be changed and forget.
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 60),
    message TEXT NOT NULL CHECK (length(message) BETWEEN 1 AND 1000),
    written_unix_s INTEGER NOT NULL
) STRICT;

INSERT INTO entry (name, message, written_unix_s)
VALUES ('flatout', 'This table was made by demo/migrations/001_guestbook.sql when the server first started. Now write something.', unixepoch());
