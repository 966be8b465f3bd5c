// The views in the order of the navigation.

import {view as clocks} from "./clocks.js";
import {view as table} from "./table.js";
import {view as decay} from "./decay.js";
import {view as scalings} from "./scalings.js";

export const views = [clocks, table, decay, scalings];
