// What the program prints: lines, the JSON object, the summary.
#pragma once

#include <string>

#include "common/output_file.hpp"
#include "make_images.hpp"
#include "session.hpp"

namespace penstock::match {

// Query, database, image, distance.
status write_lines(const session& s, apps::output_file& to);

// One line each.
std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& report);

void say_summary(const session& s);
void say_summary(const request& asked, const make_report& report);

}  // namespace penstock::match
