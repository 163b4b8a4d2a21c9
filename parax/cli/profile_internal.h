#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parax/sched/profile.h"

namespace parax {

// What --profile prints: time by layer kind against the machine's peaks, waits, and the ops that
// are furthest above what the peaks allow.
std::string ProfileTable(const Profile& profile);
nlohmann::ordered_json ProfileJson(const Profile& profile);

}  // namespace parax
