// What the programs' reports have in common: the JSON object on standard output, and numbers in
// text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "penstock/runtime.hpp"

namespace penstock::apps {

// A number by a form of printf, such as "%.3f s".
std::string text_of(const char* form, double number);

// The name of a file as a field of a line whose fields are separated by tabs: \\ for a backslash,
// \t for a tab and \n for a line end, so that different names stay different and a line stays a
// line.
std::string field_of(const std::string& text);

// One line. Names of files need not be UTF-8; JSON must be.
std::string line_of(const nlohmann::json& what);

// Where the runtime runs, how large its cache is, and what it did.
nlohmann::json json_of(const runtime& rt);

// On standard output. A message if it cannot be written.
status print_json(const std::string& text);

}  // namespace penstock::apps
