// What the built page contains besides our own code (Apache 2.0), with the notices that must stay with it.

const mit = (copyright) => `${copyright}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`;

export const licences = [
  {name: "Chart.js 3.9.1", licence: "MIT", notice: mit("Copyright (c) 2014-2022 Chart.js Contributors")},
  {name: "@kurkle/color 0.2.1", licence: "MIT", notice: mit("Copyright (c) 2018-2021 Jukka Kurkela")},
  {name: "nlohmann/json", licence: "MIT", notice: mit("Copyright (c) 2013-2022 Niels Lohmann")},
  {name: "{fmt}", licence: "MIT", notice: mit("Copyright (c) 2012 - present, Victor Zverovich")},
  {name: "Emscripten runtime", licence: "MIT", notice: mit("Copyright (c) 2010-2014 Emscripten authors, see AUTHORS file.")},
  {name: "musl libc", licence: "MIT", notice: mit("Copyright © 2005-2020 Rich Felker, et al.")},
  {name: "libc++, libc++abi, compiler-rt", licence: "Apache 2.0 with LLVM exceptions",
   notice: "The LLVM Project is under the Apache License v2.0 with LLVM Exceptions: compiled code that embeds portions of it may be distributed without its conditions 4(a), 4(b) and 4(d)."},
];
