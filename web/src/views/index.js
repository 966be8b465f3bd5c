// The views in the order of the navigation.

import {view as clocks} from "./clocks.js";
import {view as table} from "./table.js";
import {view as decay} from "./decay.js";
import {view as scalings} from "./scalings.js";
import {view as layouts} from "./layouts.js";
import {view as accuracy} from "./accuracy.js";
import {view as diagnose} from "./diagnose.js";
import {view as attention} from "./attention.js";

export const views = [clocks, table, decay, scalings, layouts, accuracy, diagnose, attention];
