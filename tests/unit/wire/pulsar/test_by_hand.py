"""What is read and written by hand is what protobuf reads and writes, byte for byte."""

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.ids import MAX_ID
from daybook.wire.pulsar.by_hand import (
    NO_PARTITION,
    encode_message_head,
    encode_send_receipt,
    parse_send,
)
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
)
from tests.unit.wire.pulsar.kit import UINT64, send, send_bodies

IDS = st.integers(0, 300) | st.integers(0, MAX_ID)


def is_read_as_protobuf_reads_it(command: bytes) -> bool:
    """Whether `parse_send` takes the command; then protobuf takes it too, and finds the same in it and nothing else."""
    read = parse_send(command)
    if read is None:
        return False
    decoded = BaseCommand.FromString(command)
    assert decoded.IsInitialized()
    assert decoded.type == BaseCommand.SEND
    found = decoded.send
    assert read == (found.producer_id, found.sequence_id, found.num_messages, found.highest_sequence_id)
    plain = CommandSend(producer_id=found.producer_id, sequence_id=found.sequence_id)
    plain.num_messages, plain.highest_sequence_id = found.num_messages, found.highest_sequence_id
    for name in ("num_messages", "highest_sequence_id"):
        if not found.HasField(name):
            plain.ClearField(name)
    assert decoded == BaseCommand(type=BaseCommand.SEND, send=plain), "nothing was overlooked"
    return True


@given(body=send_bodies)
def test_a_send_is_read_as_protobuf_reads_it_or_left_to_it(body: CommandSend) -> None:
    command = BaseCommand(type=BaseCommand.SEND, send=body).SerializeToString()
    is_plain = (
        not body.HasField("is_chunk")
        and not body.HasField("txnid_least_bits")
        and body.num_messages >= 0
        and max(body.producer_id, body.sequence_id, body.highest_sequence_id) < 2**63
    )
    assert is_read_as_protobuf_reads_it(command) == is_plain


@given(body=send_bodies, at=st.integers(0, 40), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_a_damaged_send_is_read_as_protobuf_reads_it_or_left_to_it(
    body: CommandSend, at: int, byte: int, cut: int
) -> None:
    command = bytearray(BaseCommand(type=BaseCommand.SEND, send=body).SerializeToString())
    command[at % len(command)] = byte
    is_read_as_protobuf_reads_it(bytes(command))
    is_read_as_protobuf_reads_it(bytes(command[: cut % len(command)]))


@given(
    fields=st.lists(
        st.tuples(st.sampled_from([0x08, 0x10, 0x18, 0x30, 0x38, 0x0A]), st.binary(max_size=10)), max_size=8
    )
)
def test_a_send_of_fields_in_any_order_and_number_is_read_as_protobuf_reads_it_or_left_to_it(
    fields: list[tuple[int, bytes]],
) -> None:
    body = b"".join(bytes([tag]) + value for tag, value in fields)
    command = b"\x08\x06\x32" + bytes([len(body)]) + body
    try:
        is_read_as_protobuf_reads_it(command)
    except DecodeError:
        raise AssertionError("protobuf refuses what was taken") from None


def test_fields_in_another_order_or_twice_are_left_to_protobuf() -> None:
    assert parse_send(b"\x08\x06\x32\x06\x08\x01\x10\x02\x08\x05") is None


def test_a_send_without_a_required_field_is_left_to_protobuf() -> None:
    assert parse_send(b"\x08\x06\x32\x02\x08\x01") is None
    assert parse_send(b"\x08\x06\x32\x02\x10\x01") is None


def test_another_command_is_left_to_protobuf() -> None:
    assert parse_send(BaseCommand(type=BaseCommand.PING).SerializeToString()) is None
    assert parse_send(b"") is None


def test_the_usual_send_is_read() -> None:
    command = send(
        producer_id=1, sequence_id=300, num_messages=124, highest_sequence_id=423
    ).SerializeToString()
    assert parse_send(command) == (1, 300, 124, 423)


@given(producer_id=UINT64, sequence_id=UINT64, ledger_id=IDS, entry_id=IDS, highest=UINT64)
def test_a_receipt_is_what_protobuf_writes(
    producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, highest: int
) -> None:
    receipt = CommandSendReceipt(
        producer_id=producer_id,
        sequence_id=sequence_id,
        message_id=MessageIdData(ledgerId=ledger_id, entryId=entry_id),
    )
    if highest:
        receipt.highest_sequence_id = highest
    expected = encode_frame(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt))
    assert encode_send_receipt(producer_id, sequence_id, ledger_id, entry_id, highest) == expected


@given(
    consumer_id=UINT64,
    ledger_id=IDS,
    entry_id=IDS,
    partition=st.just(NO_PARTITION) | st.integers(0, 2**31 - 1),
    redelivery_count=st.integers(0, 2**32 - 1),
    ack_set=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=16),
    epoch=st.none() | UINT64,
    entry=st.binary(max_size=300),
)
def test_the_head_of_a_message_is_what_protobuf_writes(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: list[int],
    epoch: int | None,
    entry: bytes,
) -> None:
    message_id = MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    if partition != NO_PARTITION:
        message_id.partition = partition
    message = CommandMessage(
        consumer_id=consumer_id, message_id=message_id, ack_set=ack_set, consumer_epoch=epoch
    )
    if redelivery_count:
        message.redelivery_count = redelivery_count
    head = encode_message_head(
        consumer_id,
        ledger_id,
        entry_id,
        len(entry),
        partition=partition,
        redelivery_count=redelivery_count,
        ack_set=ack_set,
        consumer_epoch=epoch,
    )
    assert head + entry == encode_frame(BaseCommand(type=BaseCommand.MESSAGE, message=message), entry)
