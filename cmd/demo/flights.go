package main

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

//go:embed data/flights-2001q1.csv
var embeddedFlights string

//go:embed data/airports.csv
var embeddedAirports string

const (
	flightsHeader   = "id,departure,origin,destination,delay_min,distance_mi"
	departureLayout = "2006-01-02T15:04"
	maxFlightsBytes = 64 << 20
	maxDelayMinutes = 7 * 24 * 60
	maxAirports     = 4096
)

// A departure is one row of the flights file.
type departure struct {
	id    int
	pos   int // number of earlier rows in the file, for all airports
	delay int // delay in minutes; negative if the departure was early
}

// A timetable lists the departures in the flights file, in order for each origin airport. A
// timetable does not change after parsing.
type timetable struct {
	airports []string // names of the airports, sorted
	from     map[string][]departure
	total    int
}

// openTimetable reads the file at the given path. An empty path selects the embedded file.
func openTimetable(path string) (*timetable, error) {
	if path == "" {
		return parseTimetable(strings.NewReader(embeddedFlights))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the flights file: %w: name another with -flights", err)
	}
	defer f.Close() //nolint:errcheck // the file was only read
	t, err := parseTimetable(io.LimitReader(f, maxFlightsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("flights file %q: %w", path, err)
	}
	return t, nil
}

// parseTimetable reads rows with the columns of flightsHeader. The ids must increase, the
// departures must be sorted by time, and each origin must be a valid shard name.
func parseTimetable(r io.Reader) (*timetable, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = strings.Count(flightsHeader, ",") + 1
	c.ReuseRecord = true
	head, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is empty: the first line must be %q", flightsHeader)
	}
	if err != nil {
		return nil, fmt.Errorf("not a flights file: %w: the first line must be %q", err, flightsHeader)
	}
	if got := strings.Join(head, ","); got != flightsHeader {
		return nil, fmt.Errorf("the first line is %.80q: it must be %q", got, flightsHeader)
	}
	t := &timetable{from: map[string][]departure{}}
	lastID, lastAt := 0, time.Time{}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not a row of a flights file: %w: correct that line", err)
		}
		line, _ := c.FieldPos(0)
		if c.InputOffset() > maxFlightsBytes {
			return nil, fmt.Errorf("it is larger than %d MiB: use a shorter one", maxFlightsBytes>>20)
		}
		id, err := strconv.Atoi(row[0])
		if err != nil || id <= lastID {
			return nil, fmt.Errorf("line %d: id %.40q is not a number above %d, the one before it: correct that line",
				line, row[0], lastID)
		}
		at, err := time.Parse(departureLayout, row[1])
		if err != nil || at.Before(lastAt) {
			return nil, fmt.Errorf("line %d: departure %.40q is not a time like %q at or after the one before it: "+
				"correct that line", line, row[1], departureLayout)
		}
		if err := core.CheckShard(row[2]); err != nil {
			return nil, fmt.Errorf("line %d: origin: %w", line, err)
		}
		if strings.HasPrefix(row[2], "_") {
			return nil, fmt.Errorf("line %d: origin %q starts with %q, which is reserved: correct that line", line,
				row[2], "_")
		}
		delay, err := strconv.Atoi(row[4])
		if err != nil || delay < -maxDelayMinutes || delay > maxDelayMinutes {
			return nil, fmt.Errorf("line %d: delay %.40q is not a number of minutes within a week: correct that line",
				line, row[4])
		}
		origin := strings.Clone(row[2])
		t.from[origin] = append(t.from[origin], departure{id: id, pos: t.total, delay: delay})
		t.total++
		lastID, lastAt = id, at
	}
	if t.total == 0 {
		return nil, fmt.Errorf("it has no departures: add rows under the header")
	}
	for a := range t.from {
		t.airports = append(t.airports, a)
	}
	slices.Sort(t.airports)
	if len(t.airports) > maxAirports {
		return nil, fmt.Errorf("%d origin airports: use a file with at most %d", len(t.airports), maxAirports)
	}
	if names, err := keyspace.Expand(t.airports...); err != nil {
		return nil, fmt.Errorf("origins: %w", err)
	} else if !slices.Equal(names, t.airports) {
		return nil, errors.New(`an origin is written like a range of shards: use names without ".."`)
	}
	return t, nil
}

// airportNames returns a map from the codes of the embedded airports to their cities.
func airportNames() (map[string]string, error) {
	rows, err := csv.NewReader(strings.NewReader(embeddedAirports)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("embedded airports: %w", err)
	}
	names := make(map[string]string, len(rows))
	for _, row := range rows[1:] {
		names[row[0]] = row[2]
	}
	return names, nil
}
