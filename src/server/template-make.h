/* Makes the base template by running its build script (templates/base/build), once. */
#pragma once

#include "base/base.h"

int template_make_base(const char *templates_dir, struct err *e);
