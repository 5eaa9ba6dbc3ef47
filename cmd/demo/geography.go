package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/observe/tenurehttp"
)

// A projection is an Albers equal-area conic projection. The point at (lat, lon) appears at (x, y)
// on the map. The map's width is in radians.
type projection struct {
	south, north float64 // the standard parallels, in degrees
	lat, lon     float64 // latitude and longitude of the point
	x, y         float64
	width        float64
}

const mapHeight = 0.6 // height of a map as a fraction of its width

// projectionFor returns the projection for a state. Remote states appear below the others, as on
// most maps of the country.
func projectionFor(state string) projection {
	switch state {
	case "AK":
		return projection{55, 65, 62, -152, 0.14, 0.84, 2.2}
	case "HI":
		return projection{8, 18, 20.6, -157, 0.34, 0.92, 0.8}
	case "PR", "VI":
		return projection{8, 18, 18.2, -66, 0.94, 0.93, 0.8}
	}
	return projection{29.5, 45.5, 38, -96, 0.5, 0.47, 0.8}
}

func (p projection) at(lat, lon float64) (x, y float64) {
	const degree = math.Pi / 180
	n := (math.Sin(p.south*degree) + math.Sin(p.north*degree)) / 2
	c := math.Pow(math.Cos(p.south*degree), 2) + 2*n*math.Sin(p.south*degree)
	rho := func(lat float64) float64 { return math.Sqrt(c-2*n*math.Sin(lat*degree)) / n }
	theta := n * (lon - p.lon) * degree
	east, south := rho(lat)*math.Sin(theta), rho(lat)*math.Cos(theta)-rho(p.lat)
	return p.x + east/p.width, p.y + south/p.width/mapHeight
}

// airportPlaces returns the map positions of the embedded airports.
func airportPlaces() (map[string]tenurehttp.Place, error) {
	rows, err := csv.NewReader(strings.NewReader(embeddedAirports)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("embedded airports: %w", err)
	}
	places := make(map[string]tenurehttp.Place, len(rows))
	for _, row := range rows[1:] {
		lat, err := strconv.ParseFloat(row[4], 64)
		if err != nil {
			return nil, fmt.Errorf("embedded airports: %w", err)
		}
		lon, err := strconv.ParseFloat(row[5], 64)
		if err != nil {
			return nil, fmt.Errorf("embedded airports: %w", err)
		}
		x, y := projectionFor(row[3]).at(lat, lon)
		places[row[0]] = tenurehttp.Place{X: x, Y: y, Name: row[2] + ", " + row[3]}
	}
	return places, nil
}
