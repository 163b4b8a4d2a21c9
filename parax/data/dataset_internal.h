#pragma once

#include <string_view>

#include "parax/data/dataset.h"

// What OpenDataset says of what it has found: lines for notes and warnings.
namespace parax {

inline constexpr size_t kMostListed = 12;  // classes

void DescribeSplit(std::string_view name, const Split& split, Dataset& data);
void FindCopies(Dataset& data);                 // counts and reports them
void ReportBroken(Dataset& data, bool strict);  // strict: throws Error
}  // namespace parax
