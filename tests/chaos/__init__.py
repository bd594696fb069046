"""The laws on the emulator: real processes, real threads, HTTP faults under the store clients, and kills while a load runs.

python -m tests.chaos --help

history    what was asked and answered, as plain values
laws       what must hold of any history; pure
injector   faults at the HTTP layer of botocore; `faulty` puts it into API processes and the sealer
client     one try, and what is known after it
load       writers, followers, streams that come and go, forks
killer     kills processes at random
rest       when faults are over: everything sealed, trimmed and purged, and the bucket without damage
run        all of it
"""
