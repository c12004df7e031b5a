package main

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const placed = 200

// Positions in a topic: seek, readers, the last message.
var positions = []witnessCase{
	{"seek by id", seekByID},
	{"seek by time", seekByTime},
	{"reader", readers},
	{"last message id", lastMessageID},
}

func seekByID(k *kit) string {
	there := topic("seek-by-id")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	ids := k.publishTo(there, 0, placed)
	must(consumer.AckCumulative(receive(consumer, placed)[placed-1]))
	must(consumer.Seek(ids[placed/2]))
	found := number(next(consumer))
	check(found == placed/2 || found == placed/2+1, "after a seek to %d, %d arrives first", placed/2, found)
	must(consumer.Seek(pulsar.NewMessageID(-1, -1, -1, 0))) // the client refuses its own constant, which has no partition
	same(numbers(receive(consumer, 5)), numbersTo(0, 5))
	must(consumer.Seek(pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)))
	k.publishTo(there, placed, placed+1)
	same(number(next(consumer)), placed)
	consumer.Close()
	consumer = k.subscribe(there, "inclusive", pulsar.ConsumerOptions{StartMessageIDInclusive: true})
	defer consumer.Close()
	ids = k.publishTo(there, placed+1, placed+3)
	must(consumer.Seek(ids[0]))
	same(numbers(receive(consumer, 2)), numbersTo(placed+1, placed+3))
	return "back to a message, to the first one, to the end; at the id where the client asks for that"
}

func seekByTime(k *kit) string {
	there := topic("seek-by-time")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	k.publishTo(there, 0, placed/2)
	messages := receive(consumer, placed/2)
	end := messages[len(messages)-1].PublishTime().UnixMilli()
	for time.Now().UnixMilli() <= end { // a message's time has milliseconds
	}
	middle := time.Now()
	k.publishTo(there, placed/2, placed)
	must(consumer.AckCumulative(receive(consumer, placed/2)[placed/2-1]))
	must(consumer.SeekByTime(middle))
	same(number(next(consumer)), placed/2)
	must(consumer.SeekByTime(messages[0].PublishTime().Add(-time.Minute)))
	same(number(next(consumer)), 0)
	return "to the first message that is as late as that"
}

func readers(k *kit) string {
	there := topic("reader")
	ids := k.publishTo(there, 0, placed)
	same(k.stored(there), numbersTo(0, placed))
	from := ids[placed-10]
	behind := k.reader(there, from, false)
	at := k.reader(there, from, true)
	latest := k.reader(there, pulsar.LatestMessageID(), false)
	last := k.reader(there, pulsar.LatestMessageID(), true)
	same(read(behind), placed-9)
	same(read(at), placed-10)
	check(last.HasNext(), "a reader at the last message does not see it")
	same(read(last), placed-1)
	check(!latest.HasNext(), "a reader at the end has messages")
	k.publishTo(there, placed, placed+1)
	same(read(latest), placed)
	must(behind.Seek(pulsar.NewMessageID(-1, -1, -1, 0)))
	same(read(behind), 0)
	must(behind.SeekByTime(time.Now().Add(-time.Hour)))
	same(read(behind), 0)
	for _, each := range []pulsar.Reader{behind, at, latest, last} {
		each.Close()
	}
	return "from the first, behind or at an id, at the last, at the end, from an hour ago; whether there is more"
}

func lastMessageID(k *kit) string {
	there := topic("last-message-id")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	batches := k.producer(there, pulsar.ProducerOptions{BatchingMaxPublishDelay: time.Second})
	defer batches.Close()
	same(last(consumer).EntryID(), int64(-1))
	ids := k.publishTo(there, 0, 10)
	samePlace(last(consumer), ids[9])
	ids = publish(batches, 10, 20)
	samePlace(last(consumer), ids[9])
	same(last(consumer).BatchIdx(), int32(9))
	return "none in an empty topic; a message; the last one within a batch"
}

func last(consumer pulsar.Consumer) pulsar.MessageID {
	ids, err := consumer.GetLastMessageIDs()
	must(err)
	return ids[0]
}
