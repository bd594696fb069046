"""The queues of the sealer, the indexer, the relay and the folder. They belong to the data: messages wait for an
application that is deployed again.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# The timeouts of the consumers, which also say how long a queue hides a message.
# A batch of the stream may name many logs, each of which is sealed in seconds.
SEALER_TIMEOUT = Duration.minutes(5)
# Plans for hundreds of logs, or publishes as many runs.
INDEXER_TIMEOUT = Duration.minutes(5)
# Visits begin within ten seconds, and each begins its last call within thirty more.
RELAY_TIMEOUT = Duration.minutes(1)
# A pass takes 10 s; a lane of which a folder dies waits for the rest.
FOLDER_TIMEOUT = Duration.seconds(20)
# Of the folder's queue, whose equal messages of two seconds are one: it is received after the last of them was sent.
FOLD_DELAY = Duration.seconds(2)
# The longest that SQS keeps anything: time for a person to look.
DEAD_LETTER_RETENTION = Duration.days(14)
# Six times, as Lambda asks: a message must not reappear while a throttled invocation may still hold it.
VISIBILITY_PER_TIMEOUT = 6
MAX_RECEIVES = 5


class Queues(Construct):
    """The queues and their dead-letter queues. Messages name a log and a verb and never carry data, so SQS's own key
    encrypts them.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        # Two, because their messages differ: a verb that can be sent again, and the bounds of a stream batch.
        self.delay_dead_letters = self._dead_letters("DelayDeadLetters")
        self.stream_dead_letters = self._dead_letters("StreamDeadLetters")
        self.delay = self._queue("Delay", SEALER_TIMEOUT, self.delay_dead_letters)
        self.index_dead_letters = self._dead_letters("IndexDeadLetters")
        self.index = self._queue("Index", INDEXER_TIMEOUT, self.index_dead_letters)
        self.relay_dead_letters = self._dead_letters("RelayDeadLetters")
        self.relay_stream_dead_letters = self._dead_letters("RelayStreamDeadLetters")
        self.relay = self._queue("Relay", RELAY_TIMEOUT, self.relay_dead_letters)
        # In order, so that a lane has one folder at a time. A dead one's message comes back as soon as Lambda allows.
        self.fold_dead_letters = self._dead_letters("FoldDeadLetters", fifo=True)
        self.fold = sqs.Queue(
            self,
            "Fold",
            fifo=True,
            delivery_delay=FOLD_DELAY,
            visibility_timeout=FOLDER_TIMEOUT,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=MAX_RECEIVES, queue=self.fold_dead_letters),
        )

    @property
    def all(self) -> tuple[sqs.Queue, ...]:
        """Returns every queue, in the order of their declaration."""
        return (
            *(self.delay_dead_letters, self.stream_dead_letters, self.delay),
            *(self.index_dead_letters, self.index),
            *(self.relay_dead_letters, self.relay_stream_dead_letters, self.relay),
            *(self.fold_dead_letters, self.fold),
        )

    def _queue(self, construct_id: str, consumer_timeout: Duration, dead_letters: sqs.Queue) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            visibility_timeout=Duration.seconds(VISIBILITY_PER_TIMEOUT * int(consumer_timeout.to_seconds())),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=MAX_RECEIVES, queue=dead_letters),
        )

    def _dead_letters(self, construct_id: str, *, fifo: bool = False) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            fifo=fifo or None,
            retention_period=DEAD_LETTER_RETENTION,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )
