package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	limit     = 60 * time.Second
	namespace = "witness/go"
)

// kit is what the cases share: a client of the brokers, topics of their own, and checks that report what was found.
type kit struct {
	pulsar.Client
	admin, lookups string
}

func newKit(service, admin, lookups string) *kit {
	return &kit{newClient(service), admin, lookups}
}

func newClient(service string) pulsar.Client {
	logger := log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: service, OperationTimeout: limit, Logger: logger})
	must(err)
	return client
}

func topic(name string) string {
	return "persistent://" + namespace + "/" + name
}

func path(topic string) string {
	return strings.Replace(topic, "://", "/", 1)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, text string, values ...any) {
	if !holds {
		panic(failure(fmt.Sprintf(text, values...)))
	}
}

func same(found, expected any) {
	check(reflect.DeepEqual(found, expected), "found %.300s, expected %.300s", fmt.Sprint(found), fmt.Sprint(expected))
}

// Publishing

func (k *kit) producer(topic string, options pulsar.ProducerOptions) pulsar.Producer {
	options.Topic, options.SendTimeout = topic, -1
	producer, err := k.CreateProducer(options)
	must(err)
	return producer
}

// publish publishes the numbers from `first` to before `end`; their ids in the same order.
func publish(producer pulsar.Producer, first, end int) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, end-first)
	errors := make(chan error, end-first)
	for number := first; number < end; number++ {
		message := &pulsar.ProducerMessage{Payload: payload(number)}
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			ids[number-first] = id
			errors <- err
		})
	}
	must(producer.Flush())
	for range ids {
		must(<-errors)
	}
	return ids
}

// publishTo publishes with a producer of its own, without batches.
func (k *kit) publishTo(topic string, first, end int) []pulsar.MessageID {
	producer := k.producer(topic, pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	return publish(producer, first, end)
}

func payload(number int) []byte {
	return []byte(strconv.Itoa(number))
}

func number(message pulsar.Message) int {
	found, err := strconv.Atoi(string(message.Payload()))
	must(err)
	return found
}

// numbersTo has the numbers from `first` to before `end`.
func numbersTo(first, end int) []int {
	found := []int{}
	for each := first; each < end; each++ {
		found = append(found, each)
	}
	return found
}

// Receiving

func (k *kit) subscribe(topic, name string, options pulsar.ConsumerOptions) pulsar.Consumer {
	consumer, err := k.trySubscribe(topic, name, options)
	must(err)
	return consumer
}

func (k *kit) trySubscribe(topic, name string, options pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	options.SubscriptionName = name
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	if options.TopicsPattern == "" {
		options.Topic = topic
	}
	return k.Subscribe(options)
}

// soon receives a message if there is one within a moment.
func soon(consumer pulsar.Consumer) pulsar.Message {
	patience, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	message, err := consumer.Receive(patience)
	if patience.Err() == nil {
		must(err)
	}
	return message
}

func next(consumer pulsar.Consumer) pulsar.Message {
	patience, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	message, err := consumer.Receive(patience)
	check(err == nil, "no message arrived at %s: %v", consumer.Subscription(), err)
	return message
}

func receive(consumer pulsar.Consumer, count int) []pulsar.Message {
	found := []pulsar.Message{}
	for len(found) < count {
		found = append(found, next(consumer))
	}
	return found
}

func numbers(messages []pulsar.Message) []int {
	found := []int{}
	for _, each := range messages {
		found = append(found, number(each))
	}
	return found
}

func sorted(found []int) []int {
	return slices.Sorted(slices.Values(found))
}

func ack(consumer pulsar.Consumer, message pulsar.Message) {
	must(consumer.Ack(message))
}

func (k *kit) reader(topic string, start pulsar.MessageID, isInclusive bool) pulsar.Reader {
	options := pulsar.ReaderOptions{Topic: topic, StartMessageID: start, StartMessageIDInclusive: isInclusive}
	reader, err := k.CreateReader(options)
	must(err)
	return reader
}

func read(reader pulsar.Reader) int {
	patience, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	message, err := reader.Next(patience)
	check(err == nil, "the reader of %s receives nothing: %v", reader.Topic(), err)
	return number(message)
}

// stored has everything that a topic holds, by a reader.
func (k *kit) stored(topic string) []int {
	reader := k.reader(topic, pulsar.EarliestMessageID(), false)
	defer reader.Close()
	found := []int{}
	for reader.HasNext() {
		found = append(found, read(reader))
	}
	return found
}

// Admin

func (k *kit) ask(method, path, body string) string {
	request, err := http.NewRequest(method, k.admin+"/admin/v2/"+path, strings.NewReader(body))
	must(err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(err)
	check(answer.StatusCode < 300, "%s %s: %s %s", method, path, answer.Status, text)
	return string(text)
}

func (k *kit) unload(topic string) {
	k.ask("PUT", path(topic)+"/unload", "")
}
