"""`draftmill up`: the whole product on one machine by one command, and no container engine.

In: a folder (its home) and three ports. Out: an S3 server, the embedded engine,
Prefect's server with its UI, a worker, and the deployments, whose form holds a
complete recipe for a dataset in that S3 server.

Promises: everything listens on 127.0.0.1 only and asks for generated credentials,
which stand in files of mode 600 in the home and nowhere else; whatever it started ends
with it, however that ends; rows that a run has finished are kept, and no run is left
`Running` without a process. A service that dies is started again.

  home.py         the folder: who may use it, what lies where, who holds it
  credentials.py  the password of Prefect's API, the key of the S3 server
  ports.py        which ports, and whether they are free
  deployments.py  deployments/prefect.yaml for this machine
  services.py     the processes: started together, watched, ended in order
  marked.py       every process that belongs to a home, also those of an earlier `up`
  runs.py         the runs as the API knows them: begun, ended, cancelled, given up
  board.py        what the terminal shows
  command.py      the command
"""
