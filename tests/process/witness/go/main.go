// Runs Pulsar's Go client against the brokers, case by case, and prints what it saw: one line of JSON for each case.
//
// Arguments: the service URL, the admin URL, the URL of the lookups that name the wrong broker first, then the cases; all
// if none is named. The exit code is 1 if a case failed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

const caseLimit = 180 * time.Second

// A case returns what it saw, for people; it panics with a failure.
type witnessCase struct {
	name string
	run  func(*kit) string
}

type failure string

type line struct {
	Case string `json:"case"`
	Good bool   `json:"good"`
	Ms   int64  `json:"ms"`
	Saw  string `json:"saw"`
}

func main() {
	shared := newKit(os.Args[1], os.Args[2], os.Args[3])
	wanted := os.Args[4:]
	cases := slices.Concat(publishing, subscriptions, positions, topics, moves)
	isGood := true
	for _, each := range cases {
		if len(wanted) == 0 || slices.Contains(wanted, each.name) {
			isGood = see(each, shared) && isGood
		}
	}
	if !isGood {
		os.Exit(1)
	}
}

func see(each witnessCase, shared *kit) bool {
	began := time.Now()
	found := make(chan line, 1)
	go func() {
		defer func() {
			if problem := recover(); problem != nil {
				found <- line{Saw: fmt.Sprint(problem)}
			}
		}()
		found <- line{Good: true, Saw: each.run(shared)}
	}()
	var result line
	select {
	case result = <-found:
	case <-time.After(caseLimit):
		result = line{Saw: fmt.Sprintf("not finished after %v", caseLimit)}
	}
	result.Case, result.Ms = each.name, time.Since(began).Milliseconds()
	text, err := json.Marshal(result)
	must(err)
	fmt.Println(string(text))
	return result.Good
}
