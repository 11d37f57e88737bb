/* Rows of samples in columns. A row is one input of one group (task, seed, method, part); its labels and scores follow
   each other in the order of the group's iterations, scores in thousandths of a nat. */
class Samples {
  constructor(columns) {
    Object.assign(this, columns);
    const {groups, labels, candidates} = columns.about;
    Object.assign(this, {groups, labels, candidates, count: this.group.length});
    for (const group of groups) group.places = new Map(group.iterations.map((t, place) => [t, place]));
    this.labelStart = new Uint32Array(this.count);
    this.scoreStart = new Uint32Array(this.count);
    let label = 0, score = 0;
    for (let row = 0; row < this.count; row++) {
      this.labelStart[row] = label;
      this.scoreStart[row] = score;
      const iterations = groups[this.group[row]].iterations.length;
      label += iterations;
      score += iterations * candidates[this.set[row]].length;
    }
    this.lower = this.texts.map((text) => text.toLowerCase());
    this.lowerPlaces = this.places.map((place) => place.toLowerCase());
  }

  iterations() {
    return [...new Set(this.groups.flatMap((group) => group.iterations))].sort((a, b) => a - b);
  }

  groupOf(row) { return this.groups[this.group[row]]; }

  textOf(row) { return this.texts[this.text[row]]; }

  placeOf(row) { return this.places[this.place[row]]; }

  /* The number of the label at T, or -1 for a T that the row does not have. */
  labelAt(row, t) {
    const place = this.groupOf(row).places.get(t);
    return place === undefined ? -1 : this.candidates[this.set[row]][this.predicted[this.labelStart[row] + place]];
  }

  /* Scores of the candidates in nats, at the place of an iteration in the row's group. */
  scoresAt(row, place) {
    const size = this.candidates[this.set[row]].length;
    const start = this.scoreStart[row] + place * size;
    return Array.from(this.scores.subarray(start, start + size), (score) => score / 1000);
  }

  /* Each candidate's share of the probability. */
  sharesAt(row, place) {
    const scores = this.scoresAt(row, place);
    const most = Math.max(...scores);
    const powers = scores.map((score) => Math.exp(score - most));
    const sum = powers.reduce((total, power) => total + power, 0);
    return powers.map((power) => power / sum);
  }

  /* The share of the true label at T, without an array for each row; NaN if the row has no such T or no such label. */
  trueShareAt(row, t) {
    const place = this.groupOf(row).places.get(t);
    const names = this.candidates[this.set[row]];
    const gold = names.indexOf(this.gold[row]);
    if (place === undefined || gold < 0) return NaN;
    const start = this.scoreStart[row] + place * names.length;
    let sum = 0;
    for (let n = 0; n < names.length; n++) sum += Math.exp((this.scores[start + n] - this.scores[start + gold]) / 1000);
    return 1 / sum;
  }

  /* What changed between two iterations: fixed, broken, right, wrong; empty if the row lacks one of the two. */
  changeOf(row, from, to) {
    const first = this.labelAt(row, from), second = this.labelAt(row, to), gold = this.gold[row];
    if (first < 0 || second < 0) return "";
    if (first === gold) return second === gold ? "right" : "broken";
    return second === gold ? "fixed" : "wrong";
  }

  /* The rows that a filter keeps, and what changed in them. */
  select(filter) {
    const kept = [], counts = {right: 0, wrong: 0, fixed: 0, broken: 0};
    const groups = this.groups.map((group) =>
      ["task", "seed", "method", "part"].every((name) => !filter[name] || group[name] === filter[name]));
    const texts = filter.search ? this.lower.map((text) => text.includes(filter.search)) : null;
    const places = filter.search ? this.lowerPlaces.map((place) => place.includes(filter.search)) : null;
    for (let row = 0; row < this.count; row++) {
      if (!groups[this.group[row]]) continue;
      if (filter.gold >= 0 && this.gold[row] !== filter.gold) continue;
      if (texts && !texts[this.text[row]] && !places[this.place[row]]) continue;
      const change = this.changeOf(row, filter.from, filter.to);
      if (!change || !this.passes(row, filter, change)) continue;
      counts[change] += 1;
      kept.push(row);
    }
    return {rows: Uint32Array.from(kept), counts};
  }

  passes(row, filter, change) {
    const second = this.labelAt(row, filter.to);
    if (filter.label >= 0 && second !== filter.label) return false;
    switch (filter.change) {
      case "": return true;
      case "changed": return second !== this.labelAt(row, filter.from);
      case "same": return second === this.labelAt(row, filter.from);
      case "last-right": return change === "right" || change === "fixed";
      case "last-wrong": return change === "wrong" || change === "broken";
      default: return change === filter.change;
    }
  }
}
