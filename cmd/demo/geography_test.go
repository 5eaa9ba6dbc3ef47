package main

import "testing"

func TestAirportPlaces(t *testing.T) {
	t.Parallel()
	places, err := airportPlaces()
	if err != nil {
		t.Fatal(err)
	}
	flights, err := openTimetable("")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range flights.airports {
		if p, ok := places[a]; !ok || p.X < 0 || p.X > 1 || p.Y < 0 || p.Y > 1 || p.Name == "" {
			t.Errorf("%s is drawn at %+v, %v", a, p, ok)
		}
	}
	for _, order := range [][]string{{"SEA", "SFO", "LAX"}, {"BOS", "JFK", "MIA"}, {"MSP", "DFW", "IAH"}, {"DEN", "ABQ"}} {
		for i := 1; i < len(order); i++ {
			if north, south := places[order[i-1]], places[order[i]]; north.Y >= south.Y {
				t.Errorf("%s at %+v is not above %s at %+v", order[i-1], north, order[i], south)
			}
		}
	}
	for _, order := range [][]string{{"SFO", "DEN", "ORD", "BOS"}, {"LAX", "DFW", "ATL"}} {
		for i := 1; i < len(order); i++ {
			if west, east := places[order[i-1]], places[order[i]]; west.X >= east.X {
				t.Errorf("%s at %+v is not left of %s at %+v", order[i-1], west, order[i], east)
			}
		}
	}
}
