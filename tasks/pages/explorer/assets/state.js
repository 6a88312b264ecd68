// What is chosen on a page of trips. `trips.js` fills `actions`, so that lists and maps can choose too.

import { data } from "./base.js";
import { FROM } from "./areas.js";

export const hasMap = Object.keys(data.shapes ?? {}).length > 0;

export const trips = {
  here: null, // the area that is chosen; null beside another one: where trips begin does not matter
  other: null, // where trips end, if that is chosen
  picked: false, // whether the pair was picked from a list or a picture that shows counts
  direction: FROM, // whether the map and the list are about trips from the area in their middle, or to it
  level: null, // the level that the list shows
  within: false, // whether trips that stay in the area are listed
  shown: 15, // rows of the list
  zoom: 1, // of the map
};

/** Return the area around which the map and the list are; null for none. Of a pair, that is the end that the direction names. */
export function middle() {
  return trips.direction === FROM ? (trips.here ?? trips.other) : (trips.other ?? trips.here);
}

export const actions = {
  point: () => {}, // at an area on the map
  choosePair: () => {}, // where trips begin and where they end
  show: () => {}, // the page again
};
