# Draws a run of lease.pml as an SVG, from what "spin -t -T" prints of a model with -DTELL: the lines
# that begin with @, which lease.pml lists. Variables: title, and last, the property that is broken.

function escaped(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function words(s) {
	gsub(/BEAT/, "heartbeat", s); gsub(/JOIN/, "join", s); gsub(/CLAIM/, "claim", s); gsub(/TAKE/, "preempting claim", s)
	gsub(/GIVE/, "transfer", s); gsub(/FREE/, "release", s)
	gsub(/part 0/, "no part", s); gsub(/next 0/, "next none", s); gsub(/removed 0/, "removed none", s)
	gsub(/ 0 ticks ago/, " of this tick", s); gsub(/ 1 ticks/, " 1 tick", s)
	return escaped(s)
}
# rest: the words of the line from the nth on
function rest(n, i, s) { for (i = n; i <= NF; i++) s = s (i > n ? " " : "") $i; return s }
function y(r) { return top + r * high }
function row(at, s) { rows++; where[rows] = at; seen[at] = 1; text[rows] = words(s) }
# arrow: a message from a column and row to another one
function arrow(c1, r1, c2, r2) {
	drawn = drawn sprintf("<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" marker-end=\"url(#to)\"/>\n", x[c1], y(r1), x[c2], y(r2))
}
function endbar(m, r) {
	drawn = sprintf("<rect class=\"lease\" x=\"%d\" y=\"%d\" width=\"10\" height=\"%d\"/><text class=\"token\" x=\"%d\" y=\"%d\">%d</text>\n",
		x[m] - 5, y(since[m]), (r - since[m]) * high, (m == 1 ? x[m] - 16 : x[m] + 9), y(since[m]) + 12, held[m]) drawn
}

# event: what a line of the model draws
function event() {
	if ($1 == "@i") row(3, rest(2))
	else if ($1 == "@l") row(4, rest(2))
	else if ($1 == "@e") row($2, rest(3))
	else if ($1 == "@t") { ticks++; row(4, "tick " ticks ": " rest(2)) }
	else if ($1 == "@s") { row($2, rest(4)); from[$2, $3] = rows; delete back[$2, $3] }
	else if ($1 == "@a") { row(0, rest(4)); if (($2, $3) in from) arrow($2, from[$2, $3], 0, rows); back[$2, $3] = rows }
	else if ($1 == "@r") { row($2, rest(4)); if (($2, $3) in back) arrow(0, back[$2, $3], $2, rows); delete back[$2, $3] }
	else if ($1 == "@k") from[$2, $4] = from[$2, $3]
	else if ($1 == "@x") { row(3, rest(4)); cross() }
	else if ($1 == "@+") {
		if (length(text[rows] $0) > 76) row(where[rows], rest(2))
		else text[rows] = text[rows] "; " words(rest(2))
	} else if ($1 == "@v") {
		for (m = 1; m <= 2; m++) {
			if ($(m + 1) == held[m]) continue
			if (held[m]) endbar(m, rows)
			held[m] = $(m + 1); since[m] = rows
		}
	}
}
# cross: the message of the line ends on its way
function cross() {
	c = ($2, $3) in back ? 0 : $2
	r = c == 0 ? back[$2, $3] : from[$2, $3]
	x[5] = (x[0] + x[$2]) / 2
	drawn = drawn sprintf("<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>" \
		"<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-weight=\"bold\">&#215;</text>\n", x[c], y(r), x[5], y(rows), x[5], y(rows) + 4)
	delete back[$2, $3]
}
# likewise: one row for the ticks in which everything happened as in the tick before
function likewise() {
	if (same) { ticks += same; $0 = "@l " (same > 1 ? "ticks " (ticks - same + 1) " to " ticks : "tick " ticks) ": likewise"; event() }
	same = 0
}

BEGIN { high = 21; top = 66; x[1] = 580; x[0] = 705; x[2] = 830; name[1] = "m1"; name[0] = "store"; name[2] = "m2"; width = 880 }
/^@t/ { blocks++ }
/^@/ { line[++lines] = $0; block[lines] = blocks + 0; if (!/^@[tv]/) body[blocks + 0] = body[blocks + 0] $0 "\n" }
END {
	for (l = 1; l <= lines; l++) {
		b = block[l]
		$0 = line[l]
		if (b > 1 && b < blocks && body[b] == body[b - 1]) {
			if ($1 == "@t") same++
			continue
		}
		if ($1 == "@t") { likewise(); $0 = line[l] }
		event()
	}
	rows++
	for (m = 1; m <= 2; m++) if (held[m]) endbar(m, rows)
	height = y(rows) + 20
	if (last ~ /^S1/) last = "m1 trusts token " held[1] ", m2 trusts token " held[2] ": " last
	if (last ~ /^S6/) last = (held[1] ? "m1" : "m2") " trusts token " (held[1] ? held[1] : held[2]) " once more: " last
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height, width, height
	printf "<title>%s</title>\n<style>\n", escaped(title)
	print "text, circle, marker path { fill: #111 } line { stroke: #555 } .page { fill: #fff; stroke: #ccc } .life { stroke: #999 } .tick { stroke: #ddd }"
	print ".aside { fill: #767676 } .lease { fill: #9ec5ee } .token { fill: #1a5fa8 } .end { fill: #c00; stroke: #c00; stroke-width: 2 } text.end { stroke: none; font-weight: bold }"
	print "@media (prefers-color-scheme: dark) {"
	print "text, circle, marker path { fill: #e6e6e6 } line { stroke: #aaa } .page { fill: #16191d; stroke: #444 } .life { stroke: #666 } .tick { stroke: #333 }"
	print ".aside { fill: #999 } .lease { fill: #2f5f94 } .token { fill: #8fc0f5 } .end { fill: #ff6b6b; stroke: #ff6b6b }"
	print "}\n</style>"
	print "<defs><marker id=\"to\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"3\" orient=\"auto\"><path d=\"M0,0 L7,3 L0,6 z\"/></marker></defs>"
	printf "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n<text x=\"12\" y=\"24\" font-size=\"%d\" font-weight=\"bold\">%s</text>\n", width, height, (length(title) > 85 ? 12 : 14), escaped(title)
	print "<text class=\"aside\" x=\"12\" y=\"46\">a bar is a valid lease, with its token</text>"
	for (m = 0; m <= 2; m++) {
		if (m == 2 && !(m in seen)) continue
		printf "<text x=\"%d\" y=\"46\" text-anchor=\"middle\" font-weight=\"bold\">%s</text>", x[m], name[m]
		printf "<line class=\"life\" x1=\"%d\" y1=\"54\" x2=\"%d\" y2=\"%d\"/>\n", x[m], x[m], y(rows) - 8
	}
	for (r = 1; r < rows; r++) {
		if (where[r] == 4) printf "<line class=\"tick\" x1=\"12\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", y(r) + 7, width - 12, y(r) + 7
	}
	printf "%s", drawn
	for (r = 1; r < rows; r++) {
		printf "<text%s x=\"12\" y=\"%d\">%s</text>", (where[r] >= 3 ? " class=\"aside\"" : ""), y(r) + 4, text[r]
		if (where[r] < 3) printf "<circle cx=\"%d\" cy=\"%d\" r=\"3\"/>", x[where[r]], y(r)
		print ""
	}
	printf "<text class=\"end\" x=\"12\" y=\"%d\">%s</text>", y(rows) + 4, escaped(last)
	printf "<line class=\"end\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n</svg>\n", x[1] - 20, y(rows), x[2] + 20, y(rows)
}
