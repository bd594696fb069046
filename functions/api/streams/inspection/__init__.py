"""What operators see of a stream and of this process, as documents of the Prisma Streams contract.

seen        the values: all that was read about a stream at one moment
inspector   reads them
looked      the newest index manifests, as far as this process has looked
covered     how many published segments lie in index runs
status      values to `_index_status`
details     values to `_details`
query       what a request for one of them asks
conditional the answer, unless the client has it already, and the wait for a change
process     what the operating system says of this process
traffic     what this process is busy with
server      those two, and the settings, to `/v1/server/_details` and `/v1/server/_mem`

`docs/inspection.md` says, field by field, where each value comes from.
"""
