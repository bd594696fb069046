"""What operators see of a stream and of this process, as documents of the Prisma Streams contract.

routes      `_index_status`, `_details` and the listing
documents   values to documents. Pure.
inspector   reads the values
seen        the values: all that was read about a stream at one moment
server      `/v1/server/_details` and `/v1/server/_mem`
process     what the operating system says of this process

`docs/inspection.md` says, field by field, where each value comes from.
"""
