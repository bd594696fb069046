"""What operators see of a stream and of this process, as documents of the Prisma Streams contract.

routes      `_index_status`, `_details` and the listing
documents   converts values to documents. Pure.
inspector   reads the values: the facts about a stream at one moment
server      `/v1/server/_details` and `/v1/server/_mem`

`docs/inspection.md` says, field by field, where each value comes from.
"""
