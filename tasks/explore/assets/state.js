// What is chosen on a page of trips. `trips.js` fills `actions`, so that lists and maps can choose too.

import { data } from "./base.js";
import { FROM } from "./areas.js";

export const hasMap = Object.keys(data.shapes ?? {}).length > 0;

export const trips = {
  here: null, // the area that is chosen
  other: null, // the other end, if one is chosen
  picked: false, // whether the pair was picked from a list or a picture that shows counts
  direction: FROM, // whether the map and the list are about trips from here, or to here
  level: null, // the level that the list shows
  within: false, // whether trips that stay in the area are listed
  shown: 15, // rows of the list
  zoom: 1, // of the map
};

export const actions = {
  choose: () => {}, // an area, or null
  choosePair: () => {}, // where trips begin and where they end
  show: () => {}, // the page again
};
