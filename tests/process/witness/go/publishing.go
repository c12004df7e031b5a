package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	published  = 2000
	keys       = 7
	largeBytes = 12 << 20
)

// Producers: batches, keys, compression, chunks, access modes.
var publishing = []witnessCase{
	{"batches and keys", batchesAndKeys},
	{"without batches", withoutBatches},
	{"compression", compression},
	{"chunks", chunks},
	{"access modes", accessModes},
}

func batchesAndKeys(k *kit) string {
	saw := ""
	for name, builder := range map[string]pulsar.BatcherBuilderType{
		"default": pulsar.DefaultBatchBuilder, "by-key": pulsar.KeyBasedBatchBuilder,
	} {
		there := topic("batches-" + name)
		consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
		producer := k.producer(there, pulsar.ProducerOptions{
			BatcherBuilderType: builder, BatchingMaxPublishDelay: 20 * time.Millisecond,
		})
		failed := make(chan error, published)
		for each := range published {
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
				Payload:    payload(each),
				Key:        fmt.Sprint("key-", each%keys),
				Properties: map[string]string{"number": strconv.Itoa(each)},
				EventTime:  time.UnixMilli(int64(1 + each)),
			}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { failed <- err })
		}
		must(producer.Flush())
		entries, last := map[int64]bool{}, map[string]int{}
		for _, message := range receive(consumer, published) {
			must(<-failed)
			found := number(message)
			same(message.Key(), fmt.Sprint("key-", found%keys))
			same(message.Properties()["number"], strconv.Itoa(found))
			same(message.EventTime().UnixMilli(), int64(1+found))
			inOrder(last, message.Key(), found, keys)
			entries[message.ID().EntryID()] = true
			ack(consumer, message)
		}
		check(len(entries) < published/2, "%d entries are no batches", len(entries))
		saw += fmt.Sprintf("%d messages in %d entries; ", published, len(entries))
		producer.Close()
		consumer.Close()
	}
	return saw + "keys, properties, times and order kept"
}

// inOrder checks that the numbers of a key arrive as they were published: every `step` th one.
func inOrder(last map[string]int, key string, found, step int) {
	if before, ok := last[key]; ok {
		same(found, before+step)
	} else {
		same(found, found%step)
	}
	last[key] = found
}

func withoutBatches(k *kit) string {
	there := topic("without-batches")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	ids := k.publishTo(there, 0, published)
	messages := receive(consumer, published)
	same(numbers(messages), numbersTo(0, published))
	for i, message := range messages {
		samePlace(message.ID(), ids[i])
	}
	return fmt.Sprint(published, " messages in order, with the ids of their receipts")
}

func samePlace(found, expected pulsar.MessageID) {
	same(
		[]int64{found.LedgerID(), found.EntryID(), int64(found.BatchIdx())},
		[]int64{expected.LedgerID(), expected.EntryID(), int64(expected.BatchIdx())},
	)
}

func compression(k *kit) string {
	types := map[string]pulsar.CompressionType{
		"LZ4": pulsar.LZ4, "ZSTD": pulsar.ZSTD, "ZLIB": pulsar.ZLib, "SNAPPY": pulsar.SNAPPY,
	}
	for name, kind := range types {
		for _, unbatched := range []bool{false, true} {
			there := topic(fmt.Sprint("compression-", name, unbatched))
			consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
			producer := k.producer(there, pulsar.ProducerOptions{CompressionType: kind, DisableBatching: unbatched})
			publish(producer, 0, 200)
			long := bytes.Repeat([]byte("x"), 100_000)
			_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: long})
			must(err)
			same(numbers(receive(consumer, 200)), numbersTo(0, 200))
			same(len(next(consumer).Payload()), len(long))
			producer.Close()
			consumer.Close()
		}
	}
	return "[LZ4, ZSTD, ZLIB, SNAPPY], each with batches and without"
}

func chunks(k *kit) string {
	there := topic("chunks")
	large := make([]byte, largeBytes)
	random := rand.New(rand.NewSource(1))
	random.Read(large)
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := k.producer(there, pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true})
	defer producer.Close()
	for _, each := range [][]byte{payload(0), large, payload(2)} {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: each})
		must(err)
	}
	same(number(next(consumer)), 0)
	message := next(consumer)
	check(bytes.Equal(message.Payload(), large), "%d bytes arrived, changed", len(message.Payload()))
	ack(consumer, message)
	same(number(next(consumer)), 2)
	return fmt.Sprintf("a message of %d MiB between two small ones, unchanged", largeBytes>>20)
}

func accessModes(k *kit) string {
	there := topic("access-modes")
	owner := k.producer(there, pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	_, err := k.CreateProducer(pulsar.ProducerOptions{Topic: there})
	check(err != nil, "a second producer was let in beside an exclusive one")
	waiting := make(chan pulsar.Producer, 1)
	go func() {
		producer, err := k.CreateProducer(pulsar.ProducerOptions{
			Topic: there, ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive,
		})
		check(err == nil, "the waiting producer was refused: %v", err)
		waiting <- producer
	}()
	publish(owner, 0, 1)
	check(len(waiting) == 0, "the second exclusive producer does not wait")
	owner.Close()
	select {
	case second := <-waiting:
		publish(second, 1, 2)
		second.Close()
	case <-time.After(limit):
		panic(failure("the waiting producer was not let in"))
	}
	same(k.stored(there), numbersTo(0, 2))
	return fmt.Sprintf("a second producer refused (%.60s…), and one that waits let in after the first has closed", err)
}
