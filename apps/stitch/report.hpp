// What a run or a made file looks like to people and to programs.
#pragma once

#include <string>

#include "make_tiles.hpp"
#include "session.hpp"

namespace penstock::stitch {

std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& r);
void say_summary(const session& s);
void say_summary(const request& asked, const make_report& r);

}  // namespace penstock::stitch
