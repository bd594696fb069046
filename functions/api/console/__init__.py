"""The console at `/` and the API reference at `/docs`: files of the artifact, which need no key.

files.py    reads them: its own below `files/`, and those of Swagger UI, which a locked wheel brings
routes.py   serves them

`files/durable-streams.js` is the official JavaScript client, and says itself how it is made; the other files are as they
were written. A browser gets nothing that is not here.
"""
